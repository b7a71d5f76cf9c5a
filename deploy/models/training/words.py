"""Words, characters and names for copies and introductions."""

# The most frequent Chinese characters, most frequent first.
CHARACTERS = (
    "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过"
    "子说产种面而方后多定行学法所民得经十三之进着等部度家电力里如水化高自二理起小物现实加量都两体"
    "制机当使点从业本去把性好应开它合还因由其些然前外天政四日那社义事平形相全表间样与关各重新线内"
    "数正心反你明看原又么利比或但质气第向道命此变条只没结解问意建月公无系军很情者最立代想已通并提"
    "直题党程展五果料象员革位入常文总次品式活设及管特件长求老头基资边流路级少图山统接知较将组见计"
    "别她手角期根论运农指几九区强放决西被干做必战先回则任取据处队南给色光门即保治北造百规热领七海"
    "口东导器压志世金增争济阶油思术极交受联什认六共权收证改清己美再采转更单风切打白教速花带安场身"
    "车例真务具万每目至达走积示议声报斗完类八离华名确才科张信马节话米整空元况今集温传土许步群广石"
    "记需段研界拉林律叫且究观越织装影算低持音众书布复容儿须际商非验连断深难近矿千周委素技备半办青"
    "省列习响约支般史感劳便团往酸历市克何除消构府称太准精值号率族维划选标写存候毛亲快效斯院查江型"
    "眼王按格养易置派层片始却专状育厂京识适属圆包火住调满县局照参红细引听该铁价严首底液官德随病苏"
    "失尔死讲配女黄推显谈罪神艺呢席含企望密批营项防举球英氧势告李台落木帮轮破亚师围注远字材排供河"
    "态封另施减树溶怎止案言士均武固叶鱼波视仅费紧爱左章早朝害续轻服试食充兵源判护司足某练差致板田"
    "降黑犯负击范继兴似余坚曲输修故城夫够送笔船占右财吃富春职觉汉画功巴跟虽杂飞检吸助升阳互初创抗"
    "考投坏策古径换未跑留钢曾端责站简述钱副尽帝射草冲承独令限阿宣环双请超微让控州良轴找否纪益依优"
    "顶础载倒房突坐粉敌略客袁冷胜绝析块剂测丝协诉念陈仍罗盐友洋错苦夜刑移频逐靠混母短皮终聚汽村云"
    "哪既距卫停烈央察烧迅境若印洲刻括激孔搞甚室待核校"
)
_WORDS = """
hello world apple banana orange table window river mountain phone screen button open close start
stop send message code data file error python server model token stream image text number red green
blue yellow small big fast slow good day night time year water fire earth wind the of and to in is
you that it he was for on are as with his they at be this have from or one had by word but not what
all were we when your can said there use an each which she do how their if will up other about out
many then them these so some her would make like him into has look two more write go see no way
could people my than first been call who its now find long down did get come made may part test
"""
WORDS = _WORDS.split()
SURNAMES = "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林郑谢罗梁宋唐许韩冯邓曹彭田董袁潘蒋蔡余杜叶程苏"
GIVEN_NAMES = "明红丽强军磊洋勇杰娟涛静敏伟芳华建国志文辉力平刚玉兰鹏飞雪梅东波宇浩然子涵思远海燕春"
_NAMES = """
Alice Ben Carla David Ella Frank Grace Henry Ivan Jack Kate Lucy Maria Nick Olga Peter Rosa Sam Tom
Victor Wendy Zoe Bob Anna Leo Mia Noah Emma Liam Eva Paul Jane John Mary Max Nina Oscar Ruth
"""
NAMES = _NAMES.split()
