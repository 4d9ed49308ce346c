"""An SBE schema with two messages, for tests of what decodes by it."""

ORDERS = """<sbe:messageSchema xmlns:sbe="http://fixprotocol.io/2016/sbe" id="7" version="1" byteOrder="%s">
  <types>
    <composite name="messageHeader">
      <type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
      <type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/>
    </composite>
    <type name="Symbol" primitiveType="char" length="6"/>
    <type name="MaybePrice" primitiveType="int64" presence="optional"/>
    <enum name="Side" encodingType="uint8"><validValue name="BUY">1</validValue></enum>
  </types>
  <sbe:message name="Order" id="1">
    <field name="orderId" id="1" type="uint64"/><field name="side" id="2" type="Side"/>
    <field name="symbol" id="3" type="Symbol"/><field name="price" id="4" type="MaybePrice" offset="16"/>
    <field name="note" id="5" type="int16" sinceVersion="1"/>
  </sbe:message>
  <sbe:message name="Cancel" id="2"><field name="orderId" id="1" type="uint64"/></sbe:message>
</sbe:messageSchema>"""


def schema_file(tmp_path, text=ORDERS % "littleEndian"):
    path = tmp_path / "orders.xml"
    path.write_text(text)
    return str(path)
